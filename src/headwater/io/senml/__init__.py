"""SenML, the sensors' JSON: `columns` reads messages, by `form` where they look like earlier ones, else by `scan`."""
