"""What both sides of logins share: asking servers of others safely, the code flow of OAuth, and signed tokens."""
