"""Images that come with masks: finding pairs, reading masks, knowing classes and objects."""
