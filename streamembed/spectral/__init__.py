"""One symmetric operator followed as it changes: factor or trial space, certificate, axes."""
