"""Tables in other libraries: polars, Spark, Ray Data, dlt and Dagster."""
