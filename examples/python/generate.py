"""Generates tokens from a folder that `exportguard export --for genai` wrote, without torch.

python generate.py FOLDER [TOKEN…]
"""

from __future__ import annotations

import sys

import onnxruntime_genai

folder, *prompt = sys.argv[1:]
model = onnxruntime_genai.Model(folder)
settings = onnxruntime_genai.GeneratorParams(model)
tokens = [int(token) for token in prompt] or [5, 6, 7]
settings.set_search_options(max_length=len(tokens) + 8, min_length=len(tokens) + 8, do_sample=False)
generator = onnxruntime_genai.Generator(model, settings)
generator.append_tokens(tokens)
while not generator.is_done():
    generator.generate_next_token()
print(*(int(token) for token in generator.get_sequence(0)))
