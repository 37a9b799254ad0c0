"""Finds code whose result may differ between runs: real clocks, randomness, threads, and the iteration order of sets.

It reads one file at a time and infers types only from that file: a set is a name that is annotated, built or assigned
as one in the same function, or an attribute of the same class. `# determinism: <reason>` on the line excuses a finding.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from typing import NamedTuple

NAMES = {  # a name, or everything below it -> why it is banned
    "asyncio.wait": "returns sets: iterate over your own list of tasks",
    "asyncio.as_completed": "its order among tasks that end together is that of a set",
    "asyncio.all_tasks": "is a set",
    "asyncio.TaskGroup": "cancels its tasks in the order of a set",
    "asyncio.to_thread": "use the Workers port",
    "asyncio.run_coroutine_threadsafe": "there are no threads in a simulation",
    "threading": "use the Workers port",
    "_thread": "use the Workers port",
    "concurrent.futures": "use the Workers port",
    "multiprocessing": "use the Workers port",
    "time": "use the Clock port",
    "datetime.datetime.now": "use the Clock port",
    "datetime.datetime.utcnow": "use the Clock port",
    "datetime.datetime.today": "use the Clock port",
    "datetime.date.today": "use the Clock port",
    "random": "use the Entropy port, or a random.Random with a seed",
    "secrets": "use the Entropy port",
    "os.urandom": "use the Entropy port",
    "os.getrandom": "use the Entropy port",
    "uuid.uuid1": "use the Entropy port",
    "uuid.uuid4": "use the Entropy port",
}
METHODS = {  # a method of any object -> why it is banned
    "run_in_executor": "use the Workers port",
    "call_soon_threadsafe": "there are no threads in a simulation",
}
BUILTINS = {
    "id": "addresses differ from run to run: number your objects",
    "hash": "of strings differs from process to process: use a CRC or a digest",
}
SET_ORDER = "the order of a set differs from run to run: sort it"
EMPTY_EXCUSE = "an excuse needs a reason: # determinism: <reason>"
VAIN_EXCUSE = "this excuses nothing"

SEEDED = "random.Random"
SET_MAKERS = {"set", "frozenset"}
SET_TYPES = {"set", "frozenset", "Set", "FrozenSet", "AbstractSet", "MutableSet"}
SET_METHODS = {"union", "intersection", "difference", "symmetric_difference", "copy"}
ORDER_DOES_NOT_MATTER = {"sorted", "set", "frozenset", "len", "any", "all", "sum", "min", "max", "bool", "isinstance"}
MATTERS_WITH_KEY = {"min", "max"}
EXCUSE = re.compile(r"#\s*determinism:\s*(.*)")


class Finding(NamedTuple):
    line: int
    what: str
    why: str


def lint(source: str) -> list[Finding]:
    """Returns the findings in a file, by line."""
    tree = ast.parse(source)
    visitor = _Visitor()
    visitor.visit(tree)
    excuses = dict(_excuses(source))
    findings = []
    used = []
    for finding, first, last in visitor.findings:
        lines = [line for line in range(first, last + 1) if line in excuses]
        used += lines
        if not lines:
            findings.append(finding)
    for line, reason in excuses.items():
        if not reason:
            findings.append(Finding(line, "# determinism:", EMPTY_EXCUSE))
        elif line not in used:
            findings.append(Finding(line, f"# determinism: {reason}", VAIN_EXCUSE))
    return sorted(findings)


def _excuses(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and (match := EXCUSE.match(token.string)):
            yield token.start[0], match.group(1).strip()


def _banned(name: str) -> str | None:
    if name == SEEDED:
        return None
    parts = name.split(".")
    for size in range(len(parts), 0, -1):
        if why := NAMES.get(".".join(parts[:size])):
            return why
    return None


class _Visitor(ast.NodeVisitor):
    def __init__(self) -> None:
        self.findings: list[tuple[Finding, int, int]] = []
        self.imported: dict[str, str] = {}
        self.variables: list[dict[str, bool]] = [{}]
        """Per scope: whether a name is a set."""
        self.attributes: list[dict[str, bool]] = []
        """Per class: whether self.<name> is a set."""
        self.functions: list[str] = []
        self.excused: list[ast.expr] = []
        """Expressions in a context where their order does not matter."""

    def find(self, node: ast.expr | ast.stmt, what: str, why: str) -> None:
        self.findings.append((Finding(node.lineno, what, why), node.lineno, node.end_lineno or node.lineno))

    # names

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.imported[alias.asname or alias.name.partition(".")[0]] = (
                alias.name if alias.asname else alias.name.partition(".")[0]
            )
            if alias.name != "random" and (why := _banned(alias.name)):
                self.find(node, f"import {alias.name}", why)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            name = f"{'.' * node.level}{node.module or ''}.{alias.name}"
            self.imported[alias.asname or alias.name] = name
            if why := _banned(name):
                self.find(node, f"from {node.module} import {alias.name}", why)

    def dotted(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Name):
            return self.imported.get(node.id)
        if isinstance(node, ast.Attribute):
            before = self.dotted(node.value)
            return f"{before}.{node.attr}" if before else None
        return None

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name = self.dotted(node)
        why = _banned(name) if name else None
        if name and why:
            self.find(node, name, why)
        elif node.attr in METHODS:
            self.find(node, f".{node.attr}", METHODS[node.attr])
        else:
            self.generic_visit(node)

    # calls

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else None
        is_plain = name is not None and name not in self.imported and not self.is_local(name)
        if self.dotted(node.func) == SEEDED and not node.args:
            self.find(node, "random.Random()", NAMES["random"])
        if is_plain and name in BUILTINS and not (name == "hash" and self.functions[-1:] == ["__hash__"]):
            self.find(node, f"{name}(…)", BUILTINS[name])
        for keyword in node.keywords:
            if isinstance(keyword.value, ast.Name) and keyword.value.id in BUILTINS and keyword.arg == "key":
                self.find(node, f"key={keyword.value.id}", BUILTINS[keyword.value.id])
        has_key = any(keyword.arg == "key" for keyword in node.keywords)
        if is_plain and name in ORDER_DOES_NOT_MATTER and not (has_key and name in MATTERS_WITH_KEY):
            self.excused += node.args
        elif self.takes_order(node):
            for argument in node.args:
                self.check_order(argument.value if isinstance(argument, ast.Starred) else argument)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "pop" and not node.args:
            self.check_order(node.func.value)
        self.generic_visit(node)

    @staticmethod
    def takes_order(node: ast.Call) -> bool:
        """Whether the order of its arguments' items affects the result."""
        if isinstance(node.func, ast.Name):
            return node.func.id in {
                "list",
                "tuple",
                "iter",
                "enumerate",
                "zip",
                "map",
                "filter",
                "reversed",
                "min",
                "max",
            }
        if isinstance(node.func, ast.Attribute):
            return node.func.attr in {"extend", "join", "fromkeys", "chain", "from_iterable", "deque", "writelines"}
        return False

    # sets

    def visit_For(self, node: ast.For) -> None:
        self.check_order(node.iter)
        self.generic_visit(node)

    def visit_Starred(self, node: ast.Starred) -> None:
        self.check_order(node.value)
        self.generic_visit(node)

    def visit_YieldFrom(self, node: ast.YieldFrom) -> None:
        self.check_order(node.value)
        self.generic_visit(node)

    def visit_ListComp(self, node: ast.ListComp) -> None:
        self.visit_comprehension_of(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> None:
        self.visit_comprehension_of(node)

    def visit_DictComp(self, node: ast.DictComp) -> None:
        self.visit_comprehension_of(node)

    def visit_comprehension_of(self, node: ast.ListComp | ast.GeneratorExp | ast.DictComp) -> None:
        if node not in self.excused:
            for generator in node.generators:
                self.check_order(generator.iter)
        self.generic_visit(node)

    def check_order(self, node: ast.expr) -> None:
        if self.is_set(node):
            self.find(node, ast.unparse(node), SET_ORDER)

    def is_set(self, node: ast.expr | None) -> bool:
        if isinstance(node, ast.Set | ast.SetComp):
            return True
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                return node.func.id in SET_MAKERS
            is_method = isinstance(node.func, ast.Attribute) and node.func.attr in SET_METHODS
            return is_method and isinstance(node.func, ast.Attribute) and self.is_set(node.func.value)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor):
            return self.is_set(node.left) or self.is_set(node.right)
        if isinstance(node, ast.IfExp):
            return self.is_set(node.body) or self.is_set(node.orelse)
        if isinstance(node, ast.BoolOp):
            return any(self.is_set(value) for value in node.values)
        if isinstance(node, ast.Name):
            return next((scope[node.id] for scope in reversed(self.variables) if node.id in scope), False)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            return bool(self.attributes) and self.attributes[-1].get(node.attr, False)
        return False

    def is_local(self, name: str) -> bool:
        return any(name in scope for scope in self.variables)

    # tracking sets

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            self.learn(target, self.is_set(node.value))

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.generic_visit(node)
        self.learn(node.target, self.is_set(node.value))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.generic_visit(node)
        self.learn(node.target, _is_set_type(node.annotation))

    def learn(self, target: ast.expr, is_set: bool) -> None:
        if isinstance(target, ast.Name):
            self.variables[-1][target.id] = is_set
        elif (
            isinstance(target, ast.Attribute)
            and isinstance(target.value, ast.Name)
            and target.value.id == "self"
            and self.attributes
        ):
            self.attributes[-1][target.attr] = is_set or self.attributes[-1].get(target.attr, False)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.attributes.append({})
        self.variables.append({})
        for inner in ast.walk(node):  # attributes are visible to all methods, wherever they are assigned
            if isinstance(inner, ast.AnnAssign):
                self.learn(inner.target, _is_set_type(inner.annotation))
                if isinstance(inner.target, ast.Name) and inner in node.body:
                    self.attributes[-1][inner.target.id] = _is_set_type(inner.annotation)
            elif isinstance(inner, ast.Assign):
                for target in inner.targets:
                    if isinstance(target, ast.Attribute):
                        self.learn(target, self.is_set(inner.value))
        self.variables[-1] = {}
        self.generic_visit(node)
        self.variables.pop()
        self.attributes.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_function(node)

    def visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        self.variables.append({each.arg: _is_set_type(each.annotation) for each in arguments})
        self.functions.append(node.name)
        self.generic_visit(node)
        self.functions.pop()
        self.variables.pop()


def _is_set_type(annotation: ast.expr | None) -> bool:
    if isinstance(annotation, ast.Subscript):
        return _is_set_type(annotation.value)
    if isinstance(annotation, ast.BinOp):
        return _is_set_type(annotation.left) or _is_set_type(annotation.right)
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return _is_set_type(ast.parse(annotation.value, mode="eval").body)
    if isinstance(annotation, ast.Attribute):
        return annotation.attr in SET_TYPES
    return isinstance(annotation, ast.Name) and annotation.id in SET_TYPES
