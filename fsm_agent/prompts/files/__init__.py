"""Files of prompts: their text, their front matter, the templates that they include, the objects that they name.

`fsm_agent.prompts.library` finds and loads them.  A file is data: nothing in it is run but templates, in their sandbox,
and it names code by module and name alone.
"""
