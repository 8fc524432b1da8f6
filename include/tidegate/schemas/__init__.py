"""Schema languages: texts of Avro and Protobuf → the types of records. `formats` decodes by them."""
