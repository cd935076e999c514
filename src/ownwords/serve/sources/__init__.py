"""The sources that a workspace is made from: typed, dropped or fetched."""
