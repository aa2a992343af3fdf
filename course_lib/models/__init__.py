"""Small models made of the course's parts, what they learn from, and how they are trained.

`numerals` and `stories` are the data, `translator` takes the parts a reader wrote,
`language_model` holds what lesson 10 feeds its models, `training` trains, and `whole_game` is the
translator that lesson 00 begins with.
"""
