"""Several replicas of one service: the id of a session names its replica, and requests are passed on to it."""
