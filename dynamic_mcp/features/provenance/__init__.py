"""Where the packages of servers come from, and what speaks for or against them."""
