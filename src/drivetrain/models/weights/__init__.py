"""Loading weights from elsewhere: files, folders, names of other libraries, heads and inputs that differ."""
