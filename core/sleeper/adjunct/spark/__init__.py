"""Values of adjunct stores in Spark DataFrames."""
