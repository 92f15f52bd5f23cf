"""Who may use what. It knows neither faces nor links: it is given names, and decides."""
