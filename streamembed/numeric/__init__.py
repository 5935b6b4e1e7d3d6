"""Small algebra and statistics of streams: arrays in, arrays out."""
