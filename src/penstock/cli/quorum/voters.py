"""`penstock quorum add` and `penstock quorum remove`: change the voters of the metadata quorum, one at a time."""

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.cluster.location import AnyDirOption, find_at, run_at
from penstock.cli.connection.connecting import TIMEOUT_S, BootstrapOption, TimeoutOption
from penstock.cli.connection.destructive import YesOption, announce
from penstock.cli.errors import Failed, Misused
from penstock.cli.help import examples
from penstock.cli.output import Changes, Output, OutputOption
from penstock.cli.sandbox_place import HOME

if TYPE_CHECKING:
    from penstock.client.admin.quorum import QuorumDescription, QuorumReplica
    from penstock.client.client import Client

NodeArgument = Annotated[int, typer.Argument(metavar="ID", min=0, help="The id of a controller.")]


def add(
    node: NodeArgument,
    address: Annotated[
        str, typer.Option("--controller", metavar="HOST:PORT", help="Where its controller listener is reached.")
    ],
    listener: Annotated[
        str, typer.Option("--listener", help="The name of that listener, as in its controller.listener.names.")
    ] = "CONTROLLER",
    yes: YesOption = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    directory: AnyDirOption = HOME,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Make a controller that follows the quorum a voter.

    It must run, with controller.quorum.bootstrap.servers, and be listed as an observer by `penstock quorum status`.
    """
    from penstock.client.admin.voters import VoterListener
    from penstock.client.bootstrap import parse_address

    try:
        where = parse_address(address)
    except ValueError as error:
        raise Misused(f"--controller: {error}") from None
    place = announce(find_at(bootstrap, directory), yes=yes)

    async def work(client: "Client") -> None:
        found = await client.admin.describe_quorum()
        if _named(found.voters, node) is not None:
            raise Failed(f"controller {node} is a voter already")
        observer = _named(found.observers, node)
        if observer is None:
            raise Failed(
                f"node {node} does not follow the quorum: start it first; `penstock quorum status` lists it then"
            )
        await client.admin.add_voter(node, observer.directory_id, VoterListener(listener, where.host, where.port))

    with Changes(output) as changes:
        run_at(place, timeout, work)
        changes.tell(f"Controller {node} is a voter now.", controller=node, result="added")


def remove(
    node: NodeArgument,
    yes: YesOption = False,
    output: OutputOption = Output.TABLE,
    bootstrap: BootstrapOption = None,
    directory: AnyDirOption = HOME,
    timeout: TimeoutOption = TIMEOUT_S,
) -> None:
    """Take the vote from a controller.

    It follows the quorum from then on, and can be stopped.
    """
    place = announce(find_at(bootstrap, directory), yes=yes)

    async def work(client: "Client") -> "QuorumDescription":
        found = await client.admin.describe_quorum()
        voter = _named(found.voters, node)
        if voter is None:
            names = ", ".join(str(each.node_id) for each in found.voters)
            raise Failed(f"controller {node} is no voter; the voters are {names}")
        if len(found.voters) == 1:
            raise Failed(f"controller {node} is the only voter: add another first, or the cluster has no controller")
        await client.admin.remove_voter(node, voter.directory_id)
        return found

    with Changes(output) as changes:
        left = len(run_at(place, timeout, work).voters) - 1
        sentence = f"Controller {node} is no voter any more; {left} {'is' if left == 1 else 'are'} left."
        changes.tell(sentence, controller=node, result="removed", voters=left)


def _named(replicas: "tuple[QuorumReplica, ...]", node: int) -> "QuorumReplica | None":
    return next((each for each in replicas if each.node_id == node), None)


def add_to(group: typer.Typer) -> None:
    """Registers the commands."""
    group.command(
        epilog=examples(
            "penstock quorum add 4 --controller 10.0.0.4:9093",
            "penstock quorum add 4 --controller node-4:9093 --listener CONTROLLER -b broker:9092",
        )
    )(add)
    group.command(epilog=examples("penstock quorum remove 3", "penstock quorum remove 3 -b broker:9092"))(remove)
