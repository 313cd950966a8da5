"""What a folder holds: classes, masks, tables of labels, packs or published files."""
