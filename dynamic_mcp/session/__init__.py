"""One greeted client, by the era of its protocol."""
