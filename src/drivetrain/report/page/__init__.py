"""The page itself: one HTML document that needs nothing outside itself, made from a page's contents."""
