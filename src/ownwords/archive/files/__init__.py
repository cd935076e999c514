"""Safe readers for the parts of exports: folders, zips, XML, HTML, dates, front matter."""
