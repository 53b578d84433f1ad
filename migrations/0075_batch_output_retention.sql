-- How long the output and error files of a batch are kept; without end where null.

alter table {{prefix}}batches add column output_retention_seconds integer;
