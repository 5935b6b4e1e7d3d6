"""What callers hand in, read and checked once: tables, distance rows, ids, labels."""
