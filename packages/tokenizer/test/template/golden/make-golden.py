"""Writes what Python's Jinja2, set up as Hugging Face transformers does, renders for the cases of this folder.

Run: python make-golden.py (needs jinja2 3.1). features.json and expressions.json (expressions that a seeded generator
made of values, operators, methods, filters and tests) are read, their results are renewed in place; families.json is
made of every template of templates/ with every conversation of conversations.json.
"""

import copy
import datetime
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = pathlib.Path(__file__).parent
NOW = datetime.datetime(2026, 3, 5, 7, 8, 9)
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_pass_on")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _pass_on(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: NOW.strftime(form)
    return env


def render(source, variables):
    try:
        return {"expected": environment().from_string(source).render(**variables)}
    except Exception as error:
        kind = "raised" if type(error) is jinja2.exceptions.TemplateError else "value"
        return {"error": kind, "message": str(error)}


def write(path, value):
    lines = ",\n".join("  " + json.dumps(item, ensure_ascii=False) for item in value)
    path.write_text("[\n" + lines + "\n]\n")


def families():
    conversations = json.loads((HERE / "conversations.json").read_text())
    for template in sorted((HERE / "templates").glob("*.jinja")):
        for name, given in conversations.items():
            variables = {
                **TOKENS,
                **given.get("variables", {}),
                "messages": given["messages"],
                "tools": given.get("tools"),
                "documents": given.get("documents"),
                "add_generation_prompt": given.get("add_generation_prompt", True),
            }
            yield {
                "template": template.stem,
                "conversation": name,
                **render(template.read_text(), variables),
            }


def features():
    for case in json.loads((HERE / "features.json").read_text()):
        kept = {key: case[key] for key in ("about", "source", "variables") if key in case}
        yield {**kept, **render(case["source"], case.get("variables", {}))}


def expressions():
    given = json.loads((HERE / "expressions.json").read_text())
    for case in given["cases"]:
        # A filter may change a list, which the next case must not see.
        result = render(case["source"], copy.deepcopy(given["variables"]))
        yield {"source": case["source"], **result}


def write_expressions():
    path = HERE / "expressions.json"
    variables = json.loads(path.read_text())["variables"]
    lines = ",\n".join("    " + json.dumps(case, ensure_ascii=False) for case in expressions())
    head = json.dumps(variables, ensure_ascii=False)
    path.write_text('{\n  "variables": ' + head + ',\n  "cases": [\n' + lines + "\n  ]\n}\n")


write_expressions()
write(HERE / "families.json", families())
write(HERE / "features.json", features())
