"""What exports are made of: folders, zips, XML, dates, front matter; read without harm."""
