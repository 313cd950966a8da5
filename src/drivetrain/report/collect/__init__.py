"""What a page shows, collected from the files of run directories."""
