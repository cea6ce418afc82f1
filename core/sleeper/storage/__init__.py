"""Where objects live: folders, buckets and users' files. Loads no data library."""
