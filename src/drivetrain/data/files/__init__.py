"""Image files: finding, decoding and cropping them, and remembering what a scan found."""
