"""The stacks of systems, a module or folder each, which the systems' `system.py` name.

General stacks import none of them: `instance` adds those that are chosen, and asks them through
the hooks of `stacks.system_stack.SystemStack`.
"""
