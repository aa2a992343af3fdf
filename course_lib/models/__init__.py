"""Small models made of the course's parts, their data and their training.

`numerals` and `stories` are the data, `translator` takes the parts a reader wrote,
`language_model` makes the data of lesson 10's models, `training` trains, and `whole_game` is the
translator of lesson 00.
"""
