"""The optional compiled library of the CPU's kernels: C sources, their build, and what loads it. Nobody must have it.

``transom build-native`` compiles ``*.c`` here with the system's C compiler. No torch headers: functions take raw
pointers and sizes, and are called through ctypes. What calls a function stands with the layer or kernel that uses it
(``layers/``, ``kernels/``), beside the same in plain torch. This package must not know models.
"""
