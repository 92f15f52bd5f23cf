"""The page for people at `/ui`: rendered on the server, without a build and without another web framework."""
