"""Values and types as text for a model: one walk over fields, and who prints what it finds.

`fields` is the walk, over pydantic models, dataclasses and typed dictionaries, and `field` is what their authors say of
a field; `choices` are the members of enumerations.  `text` prints values, `schema` types, `example` examples, `guide`
both, and `parts` values with pictures.  `declared` reads the templates of classes, `context` those for one object.
`model` is for those who want all of it as methods; no class has to inherit from it.
"""
