"""PTX text to `ir.Module`. Imports only `ir` and `errors`.

Reads what compilers write: declarations, functions, nested scopes, inline assembly, line tables. Debug sections are
skipped. What cannot be read raises InputError EMU_PTX_SYNTAX with the line.
"""

from __future__ import annotations

import re
import struct
from dataclasses import replace

from advisor.emulator.ptx.ir import (
    TYPE_BITS,
    Address,
    Function,
    Immediate,
    Instruction,
    Module,
    Not,
    Operand,
    Pair,
    Place,
    Register,
    Sink,
    Special,
    Symbol,
    Variable,
    Vector,
)
from advisor.emulator.ptx.operands import operand_count
from advisor.errors import InputError, Where

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\f]+|//[^\n]*|/\*.*?\*/)|(?P<line>\n)
    |(?P<float>0[fF][0-9a-fA-F]{8}(?![0-9a-fA-F])|0[dD][0-9a-fA-F]{16}|\d+\.\d*(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+)
    |(?P<int>0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|\d+U?)
    |(?P<word>[A-Za-z_$%][\w$]*(?:(?:\.|::)[\w$]+)*)
    |(?P<directive>\.[A-Za-z_]\w*(?:::\w+)*)
    |(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<mark>[-{}()\[\],;:@!|+=<>*~&^?%/])""",
    re.VERBOSE | re.DOTALL,
)

_LINKING = {".visible", ".extern", ".weak", ".common"}
_SPACES = {".global", ".const", ".shared", ".local", ".param"}
_SPECIAL = re.compile(
    r"%(tid|ntid|ctaid|nctaid|clusterid|nclusterid|cluster_ctaid|cluster_nctaid)(\.[xyz])?$"
    r"|%(laneid|warpid|nwarpid|smid|nsmid|gridid|cluster_ctarank|cluster_nctarank|is_explicit_cluster|clock|clock_hi"
    r"|clock64|globaltimer|globaltimer_lo|globaltimer_hi|lanemask_(eq|le|lt|ge|gt)|total_smem_size|aggr_smem_size"
    r"|dynamic_smem_size|reserved_smem_offset_\w+|current_graph_exec|pm\d+|envreg\d+)$"
)
_COUNTS = {
    ".maxntid",
    ".reqntid",
    ".minnctapersm",
    ".maxnctapersm",
    ".maxnreg",
    ".reqnctapercluster",
    ".maxclusterrank",
    ".blocksareclusters",
    ".explicitcluster",
    ".noreturn",
}

Token = tuple[str, str, int]  # kind, text, line


def parse(text: str, name: str = "kernel.ptx") -> Module:
    """The module in `text`. Raises InputError EMU_PTX_SYNTAX, with the line and what was expected there."""
    return _Parser(text, name).module()


def _tokens(text: str, name: str) -> tuple[list[Token], list[tuple[int, int, int]]]:
    """Every token, and the line table: (index of the token that follows, file number, line)."""
    tokens: list[Token] = []
    places: list[tuple[int, int, int]] = []
    line = 1
    position = 0
    end = len(text)
    match = _TOKEN.match
    while position < end:
        found = match(text, position)
        if found is None:
            raise _syntax(name, line, f"cannot read {text[position : position + 20]!r}")
        kind = found.lastgroup
        position = found.end()
        if kind == "line":
            line += 1
            continue
        if kind == "space":
            line += found.group().count("\n")
            continue
        word = found.group()
        if word == ".loc":
            stop = text.find("\n", position)
            numbers = text[position : stop if stop >= 0 else end].split(",")[0].split()
            places.append((len(tokens), int(numbers[0]), int(numbers[1])))
            position = stop if stop >= 0 else end
            continue
        if word == ".section":  # debug information, up to the brace that closes it
            position, line = _skip_section(text, position, line)
            continue
        tokens.append((kind or "", word, line))
    tokens.append(("end", "", line))
    return tokens, places


def _skip_section(text: str, position: int, line: int) -> tuple[int, int]:
    close = text.find("}", position)
    close = len(text) if close < 0 else close + 1
    return close, line + text.count("\n", position, close)


def _syntax(name: str, line: int, message: str) -> InputError:
    return InputError(
        "EMU_PTX_SYNTAX",
        message,
        fix="pass PTX text as a compiler writes it; binary images are not read",
        where=Where(name, line),
        numbers={"line": line},
    )


class _Scope:
    """The names of one pair of braces."""

    def __init__(self, registers: dict[str, str], ranges: dict[str, int]) -> None:
        self.registers = registers  # as written -> unique
        self.ranges = ranges  # prefix of a parametrised set, as written -> size


class _Body:
    """What a function's braces add up to."""

    def __init__(self) -> None:
        self.types: dict[str, str] = {}
        self.sets: list[tuple[str, int, str]] = []
        self.variables: list[Variable] = []
        self.instructions: list[Instruction] = []
        self.labels: dict[str, int] = {}
        self.tables: dict[str, tuple[str, ...]] = {}
        self.scopes: list[_Scope] = []
        self.count = 0  # of scopes opened


class _Parser:
    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self.tokens, places = _tokens(text, name)
        files = dict(re.findall(r'^\s*\.file\s+(\d+)\s+"((?:[^"\\]|\\.)*)"', text, re.MULTILINE))
        self.places = [(index, Place(files.get(str(file), f"file {file}"), line)) for index, file, line in places]
        self.next_place = 0
        self.place: Place | None = None
        self.at = 0
        self.body = _Body()

    # --- tokens -------------------------------------------------------------------------------------------------

    def take(self, text: str | None = None) -> str:
        kind, word, line = self.tokens[self.at]
        if kind == "end" or (text is not None and word != text):
            wanted = f"expected {text!r}, " if text is not None else ""
            raise _syntax(self.name, line, f"{wanted}found {word!r}" if word else f"{wanted}found the end of the text")
        self.at += 1
        return word

    def peek(self) -> str:
        return self.tokens[self.at][1]

    def accept(self, text: str) -> bool:
        if self.tokens[self.at][1] == text and self.tokens[self.at][0] != "string":
            self.at += 1
            return True
        return False

    def fail(self, message: str) -> InputError:
        return _syntax(self.name, self.tokens[self.at][2], message)

    def integer(self) -> int:
        negative = self.accept("-")
        kind, word, _ = self.tokens[self.at]
        if kind != "int":
            raise self.fail(f"expected an integer, found {word!r}")
        self.at += 1
        value = _integer(word)
        return -value if negative else value

    # --- the module ---------------------------------------------------------------------------------------------

    def module(self) -> Module:
        version, target = (0, 0), ""
        functions: dict[str, Function] = {}
        variables: dict[str, Variable] = {}
        while self.tokens[self.at][0] != "end":
            word = self.take()
            if word == ".version":
                major, _, minor = self.take().partition(".")
                version = (int(major), int(minor or 0))
            elif word == ".target":
                target = self.take()
                while self.accept(","):
                    self.take()
            elif word == ".address_size":
                if (size := self.integer()) != 64:
                    raise self.fail(f"an address size of {size}: only 64-bit PTX is executed")
            elif word == ".file":
                while self.tokens[self.at][0] in ("int", "string") or self.peek() == ",":
                    self.at += 1
            elif word in (".pragma", ".alias"):
                self.skip_statement()
            else:
                self.at -= 1
                self.declaration(functions, variables)
        if not target:
            raise _syntax(self.name, 1, "no .target directive: this is not PTX")
        return Module(version, target, functions, variables)

    def skip_statement(self) -> None:
        while self.take() != ";":
            pass

    def declaration(self, functions: dict[str, Function], variables: dict[str, Variable]) -> None:
        external = False
        while self.peek() in _LINKING:
            external |= self.take() == ".extern"
        if self.peek() in (".entry", ".func"):
            function = self.function()
            if function.name not in functions or function.instructions:
                functions[function.name] = function
        elif self.peek() in _SPACES:
            for variable in self.variable(external):
                variables[variable.name] = variable
        else:
            raise self.fail(f"expected a declaration, found {self.peek()!r}")

    def variable(self, external: bool = False) -> list[Variable]:
        """A declaration up to its semicolon; several names may share it."""
        space = self.take()[1:].split("::")[0]
        align, kind, vector = 0, "", 1
        while self.peek().startswith("."):
            word = self.take()[1:]
            if word == "align":
                align = self.integer()
            elif word in ("v2", "v4"):
                vector = int(word[1])
            elif word in TYPE_BITS:
                kind = word
            elif word == "attribute":
                self.group("(", ")")
            elif word == "ptr":
                self.pointer_attributes()
            elif word not in ("unified", "managed"):
                raise self.fail(f"unknown type or attribute .{word} in a declaration")
        if not kind:
            raise self.fail("a declaration without a type")
        found = [self.declarator(space, kind, align or vector * TYPE_BITS[kind] // 8, vector, external)]
        while self.accept(","):
            found.append(self.declarator(space, kind, align or vector * TYPE_BITS[kind] // 8, vector, external))
        self.take(";")
        return found

    def declarator(self, space: str, kind: str, align: int, vector: int, external: bool) -> Variable:
        name = self.take()
        elements, scalar = vector, True
        while self.accept("["):
            scalar = False
            elements *= 0 if self.peek() == "]" else self.integer()
            self.take("]")
        initial: tuple[int | Symbol, ...] = ()
        if self.accept("="):
            initial = tuple(self.initialiser(kind))
            if elements == 0:
                elements = len(initial)
        return Variable(name, space, kind, align, elements, initial, external, scalar)

    def initialiser(self, kind: str) -> list[int | Symbol]:
        if self.accept("{"):
            values: list[int | Symbol] = []
            while not self.accept("}"):
                values += self.initialiser(kind)
                self.accept(",")
            return values
        if self.tokens[self.at][0] == "word":
            name = self.take()
            if name == "generic":
                self.take("(")
                name = self.take()
                offset = self.integer() if self.accept("+") else 0
                self.take(")")
                return [Symbol(name, offset)]
            return [Symbol(name, self.integer() if self.accept("+") else 0)]
        value = self.immediate()
        if value.float_bits == 64 and kind == "f32":
            return [struct.unpack("<I", struct.pack("<f", _double(value.value)))[0]]
        return [value.value]

    def group(self, opening: str, closing: str) -> None:
        self.take(opening)
        while self.take() != closing:
            pass

    def pointer_attributes(self) -> None:
        while self.peek() in (".global", ".const", ".shared", ".local"):
            self.take()
        if self.accept(".align"):
            self.integer()

    # --- functions ----------------------------------------------------------------------------------------------

    def function(self) -> Function:
        line = self.tokens[self.at][2]
        entry = self.take() == ".entry"
        self.body = _Body()
        self.body.scopes.append(_Scope({}, {}))
        returns = self.parameters() if not entry and self.peek() == "(" else ()
        name = self.take()
        params = self.parameters() if self.peek() == "(" else ()
        directives: dict[str, tuple[int, ...]] = {}
        while self.peek() in _COUNTS or self.peek() in (".pragma",):
            word = self.take()
            if word == ".pragma":
                self.skip_statement()
                continue
            numbers = []
            while self.tokens[self.at][0] == "int":
                numbers.append(self.integer())
                self.accept(",")
            directives[word[1:]] = tuple(numbers)
        if self.accept(";"):
            return Function(name, entry, params, returns, {}, (), (), {}, line=line)
        self.take("{")
        self.statements()
        body = self.body
        types = dict(body.types)
        for prefix, count, kind in body.sets:
            types.update({f"{prefix}{index}": kind for index in range(count)})
        used = {name for each in (*params, *returns) if each.space == "reg" for name in (each.name,)}
        types.update({each.name: each.type for each in (*params, *returns) if each.name in used})
        return Function(
            name=name,
            entry=entry,
            params=params,
            returns=returns,
            registers=types,
            variables=tuple(body.variables),
            instructions=tuple(body.instructions),
            labels=body.labels,
            tables=body.tables,
            directives=directives,
            line=line,
        )

    def parameters(self) -> tuple[Variable, ...]:
        self.take("(")
        found: list[Variable] = []
        while not self.accept(")"):
            space = self.take()[1:]
            align, kind = 0, ""
            while self.peek().startswith("."):
                word = self.take()[1:]
                if word == "align":
                    align = self.integer()
                elif word == "ptr":
                    self.pointer_attributes()
                elif word in TYPE_BITS:
                    kind = word
                else:
                    raise self.fail(f"unknown type or attribute .{word} of a parameter")
            found.append(self.declarator(space, kind, align or max(1, TYPE_BITS[kind] // 8), 1, False))
            if space == "reg":
                self.body.scopes[0].registers[found[-1].name] = found[-1].name
            self.accept(",")
        return tuple(found)

    def statements(self) -> None:
        """Everything up to the closing brace of the scope."""
        while True:
            while self.next_place < len(self.places) and self.places[self.next_place][0] <= self.at:
                self.place = self.places[self.next_place][1]
                self.next_place += 1
            kind, word, _ = self.tokens[self.at]
            if word == "}":
                self.at += 1
                return
            if word == "{":
                self.at += 1
                self.body.scopes.append(_Scope({}, {}))
                self.body.count += 1
                self.scoped_labels()
                self.statements()
                self.body.scopes.pop()
            elif kind == "directive":
                self.body_directive()
            elif kind == "word" and self.tokens[self.at + 1][1] == ":":
                self.at += 2
                self.label(word)
            elif word == ";":
                self.at += 1
            else:
                self.instruction()

    def scoped_labels(self) -> None:
        """The labels of the scope that has just been opened are its own: inline assembly repeats them."""
        depth, at = 0, self.at
        while depth >= 0 and self.tokens[at][0] != "end":
            kind, word, _ = self.tokens[at]
            depth += (word == "{") - (word == "}")
            if depth == 0 and kind == "word" and self.tokens[at + 1][1] == ":":
                self.body.scopes[-1].registers[word] = f"{word}@{self.body.count}"
            at += 1

    def label_name(self, word: str) -> str:
        return next((each.registers[word] for each in reversed(self.body.scopes) if word in each.registers), word)

    def label(self, name: str) -> None:
        name = self.label_name(name)
        if self.peek() == ".branchtargets":
            self.take()
            targets = [self.label_name(self.take())]
            while self.accept(","):
                targets.append(self.label_name(self.take()))
            self.take(";")
            self.body.tables[name] = tuple(targets)
        elif self.peek() in (".callprototype", ".calltargets"):
            self.skip_statement()
        else:
            self.body.labels[name] = len(self.body.instructions)

    def body_directive(self) -> None:
        word = self.peek()
        if word == ".reg":
            self.registers()
        elif word in _SPACES:
            depth = len(self.body.scopes)
            for each in self.variable():
                name = each.name
                if depth > 1:  # call parameters of one call site; the next call uses the same names
                    name = f"{each.name}@{self.body.count}"
                    self.body.scopes[-1].registers[each.name] = name
                self.body.variables.append(replace(each, name=name))
        elif word in (".pragma", ".maxnreg"):
            self.skip_statement()
        elif word == ".file":
            self.take()
            while self.tokens[self.at][0] in ("int", "string") or self.peek() == ",":
                self.at += 1
        else:
            raise self.fail(f"unknown directive {word} inside a function")

    def registers(self) -> None:
        self.take(".reg")
        kind = self.take()[1:]
        if kind in ("v2", "v4"):
            raise self.fail("vector registers (.reg .v2) are not executed")
        if kind not in TYPE_BITS:
            raise self.fail(f"unknown register type .{kind}")
        scope, depth = self.body.scopes[-1], len(self.body.scopes)
        suffix = "" if depth == 1 else f"@{self.body.count}"
        while True:
            name = self.take()
            if self.accept("<"):
                count = self.integer()
                self.take(">")
                scope.ranges[name] = count
                if suffix:
                    scope.registers.update({f"{name}{i}": f"{name}{i}{suffix}" for i in range(count)})
                    self.body.types.update({f"{name}{i}{suffix}": kind for i in range(count)})
                else:
                    self.body.sets.append((name, count, kind))
            else:
                scope.registers[name] = name + suffix
                self.body.types[name + suffix] = kind
            if not self.accept(","):
                break
        self.take(";")

    # --- instructions -------------------------------------------------------------------------------------------

    def instruction(self) -> None:
        line = self.tokens[self.at][2]
        guard, negated = None, False
        if self.accept("@"):
            negated = self.accept("!")
            named = self.operand()
            if not isinstance(named, Register):
                raise self.fail("a guard that is not a predicate register")
            guard = named
        kind, word, _ = self.tokens[self.at]
        if kind != "word":
            raise self.fail(f"expected an instruction, found {word!r}" if word else "found the end of the text")
        self.at += 1
        opcode, *qualifiers = word.split(".")
        operands: list[Operand] = []
        if not self.accept(";"):
            operands.append(self.operand())
            while self.accept(","):
                operands.append(self.operand())
            self.take(";")
        count = operand_count(opcode, qualifiers)
        if count is not None and not count[0] <= len(operands) <= count[1]:
            wanted = f"{count[0]}" if count[0] == count[1] else f"{count[0]} to {count[1]}"
            raise _syntax(self.name, line, f"{word} takes {wanted} operands, not {len(operands)}")
        self.body.instructions.append(
            Instruction(opcode, tuple(qualifiers), tuple(operands), line, guard, negated, self.place)
        )

    def operand(self) -> Operand:
        kind, word, _ = self.tokens[self.at]
        if word == "{":
            self.at += 1
            return Vector(self.list_until("}"))
        if word == "(":
            self.at += 1
            return Vector(self.list_until(")"))
        if word == "[":
            return self.address()
        if word == "!":
            self.at += 1
            inner = self.operand()
            if not isinstance(inner, Register):
                raise self.fail("'!' before something that is not a register")
            return Not(inner)
        if kind in ("int", "float") or word in ("-", "~"):
            return self.immediate()
        if kind != "word":
            raise self.fail(f"expected an operand, found {word!r}")
        self.at += 1
        named = self.named(word)
        if self.peek() == "|":
            self.at += 1
            second = self.named(self.take())
            if not isinstance(named, Register | Sink) or not isinstance(second, Register | Sink):
                raise self.fail("'|' joins two destination registers")
            return Pair(named, second)
        if isinstance(named, Symbol) and self.peek() in ("+", "-"):
            self.accept("+")
            return replace(named, offset=self.integer())
        return named

    def named(self, word: str) -> Operand:
        if word == "_":
            return Sink()
        for scope in reversed(self.body.scopes):
            if word in scope.registers:
                unique = scope.registers[word]
                return Register(unique) if unique in self.body.types or unique == word else Symbol(unique)
        if _SPECIAL.match(word):
            return Special(word[1:])
        if word == "WARP_SZ":
            return Immediate(32)
        if word[0] == "%":
            prefix = word.rstrip("0123456789")
            if any(prefix in scope.ranges for scope in self.body.scopes):
                return Register(word)
            raise self.fail(f"{word} is neither a declared register nor a special register that is known")
        return Symbol(word)

    def list_until(self, closing: str) -> tuple[Operand, ...]:
        found: list[Operand] = []
        while not self.accept(closing):
            found.append(self.operand())
            self.accept(",")
        return tuple(found)

    def address(self) -> Address:
        self.take("[")
        base = self.operand()
        if not isinstance(base, Register | Symbol | Immediate):
            raise self.fail("an address that is neither a register, a variable nor a number")
        offset = 0
        if self.peek() in ("+", "-"):
            self.accept("+")
            offset = self.integer()
        if isinstance(base, Symbol):
            base, offset = Symbol(base.name), offset + base.offset
        extra: list[Operand] = []
        while self.accept(","):
            extra.append(self.operand())
        self.take("]")
        return Address(base, offset, tuple(extra))

    def immediate(self) -> Immediate:
        negative = inverted = False
        while self.peek() in ("-", "~"):
            if self.take() == "-":
                negative = not negative
            else:
                inverted = True
        kind, word, _ = self.tokens[self.at]
        self.at += 1
        if kind == "float":
            return _float(word, negative)
        if kind != "int":
            self.at -= 1
            raise self.fail(f"expected a number, found {word!r}")
        value = _integer(word)
        value = ~value if inverted else value
        return Immediate(-value if negative else value)


def _integer(word: str) -> int:
    word = word.rstrip("U")
    if word[:2] in ("0x", "0X", "0b", "0B"):
        return int(word, 0)
    return int(word, 8) if len(word) > 1 and word[0] == "0" else int(word)


def _float(word: str, negative: bool) -> Immediate:
    if word[:2] in ("0f", "0F"):
        return Immediate(int(word[2:], 16) ^ (negative << 31), 32)
    if word[:2] in ("0d", "0D"):
        return Immediate(int(word[2:], 16) ^ (negative << 63), 64)
    value = -float(word) if negative else float(word)
    return Immediate(struct.unpack("<Q", struct.pack("<d", value))[0], 64)


def _double(bits: int) -> float:
    value: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
    return value
