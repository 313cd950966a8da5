"""Parts of the commands plan and train that concern planning."""
