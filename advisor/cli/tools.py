"""Schemas, the pages of codes, and what this machine can do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from advisor.cli.frame import command
from advisor.cli.options import Json
from advisor.cli.printing import print_document, say, say_wrapped
from advisor.errors import EXIT_DEVICE, EXIT_DONE, InputError


@command("schema")
def schema(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="problem, plan, launch, resolved, evidence, accepted or runtime.")
    ] = "problem",
    as_json: Json = False,
) -> int:
    """Print a JSON schema.

    Editors complete and check problem files with it.

    \b
    Example:
      advisor schema problem
    """
    from advisor.problem import problem_schema
    from advisor.records.acceptance import Acceptance
    from advisor.records.evidence import Evidence
    from advisor.records.launch import Launch, ResolvedLaunch
    from advisor.records.plan import Plan
    from advisor.records.runtime_file import RuntimeFile

    schemas: dict[str, Callable[[], dict[str, Any]]] = {
        "problem": problem_schema,
        "plan": Plan.model_json_schema,
        "launch": Launch.model_json_schema,
        "resolved": ResolvedLaunch.model_json_schema,
        "evidence": Evidence.model_json_schema,
        "accepted": Acceptance.model_json_schema,
        "runtime": RuntimeFile.model_json_schema,
    }
    if name not in schemas:
        raise InputError("UNKNOWN_SCHEMA", f"there is no schema {name!r}", fix=f"use one of {', '.join(schemas)}")
    print_document(schemas[name]())
    return EXIT_DONE


@command("explain")
def explain(
    code: Annotated[
        str | None, typer.Argument(metavar="CODE", help="A code as a message shows it in brackets.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Say what a code means and what to do.

    Without a code, list all.

    \b
    Example:
      advisor explain CLUSTER_OCCUPANCY
    """
    from dataclasses import asdict

    from advisor import errors

    if code is None:
        pages = errors.registry()
        if as_json:
            print_document([asdict(page) for page in pages.values()])
        else:
            width = max(map(len, pages))
            for page in pages.values():
                say_wrapped(f"{page.code:{width}}  {page.severity:7}  {page.title}", width + 11)
        return EXIT_DONE
    page = errors.explain(code)
    if as_json:
        print_document(asdict(page))
        return EXIT_DONE
    say_wrapped(f"{page.code} ({page.severity}): {page.title}")
    paragraphs = [page.meaning, f"What to do: {page.fix}", *([f"Example: {page.example}"] if page.example else [])]
    for each in paragraphs:
        say()
        say_wrapped(f"  {each}", 2)
    return EXIT_DONE


@command("doctor")
def doctor(as_json: Json = False) -> int:
    """Check this machine.

    Python, packages, compiler, disassembler, cache, driver and GPU. Exits 0 when kernels can be compiled here (a
    GPU is optional), else 3.

    \b
    Example:
      advisor doctor
    """
    from dataclasses import asdict

    from advisor.doctor import examine

    checks = examine()
    healthy = all(check.ok for check in checks if check.required)
    if as_json:
        rows = [asdict(check) for check in checks]
        print_document({"healthy": healthy, "checks": rows})
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            mark = "ok" if check.ok else "MISSING" if check.required else "none"
            say_wrapped(f"{check.name:{width}}  {mark:7}  {check.detail}", width + 11)
            if not check.ok and check.fix:
                say_wrapped(f"{'':{width}}           fix: {check.fix}", width + 11)
        say("\nKernels can be compiled here." if healthy else "\nKernels cannot be compiled here.")
    return EXIT_DONE if healthy else EXIT_DEVICE
