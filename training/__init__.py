"""The recipe of the bundled model. It imports the package; the package never imports it."""
