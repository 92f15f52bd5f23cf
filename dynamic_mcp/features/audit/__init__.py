"""The audit log: who did what, in lines that cannot be changed unseen."""
