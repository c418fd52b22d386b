"""How the coordinator and the sites talk: `messages` says what, `wire` carries it over TLS."""
