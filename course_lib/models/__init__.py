"""Small models made of the course's parts, what they learn from, and how they are trained.

`numerals`, `stories` and `prose` are the data, `translator` and `language_model` take the parts a
reader wrote, `training` trains them, and `whole_game` is the translator that lesson 00 begins with.
"""
