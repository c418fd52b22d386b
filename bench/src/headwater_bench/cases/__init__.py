"""Published placement problems: Veith et al.'s random applications, Ghosh and Simmhan's CEP dataflows."""
