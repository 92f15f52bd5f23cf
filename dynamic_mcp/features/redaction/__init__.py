"""What is replaced in texts of arguments, of results and of what servers say by themselves."""
