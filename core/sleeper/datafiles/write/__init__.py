"""Writers of data files, from one file to one per leaf partition."""
