"""Delivers messages of upstreams: chooses the client for a question, and the recipients of a notification."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from dynamic_mcp.client import Client, User
from dynamic_mcp.groups.group import Group
from dynamic_mcp.groups.instance import Instance
from dynamic_mcp.mcp.wire import Frame
from dynamic_mcp.proxy.chain import Chains
from dynamic_mcp.proxy.elicitations import COMPLETE, Elicitations
from dynamic_mcp.proxy.resource_subscriptions import ResourceSubscriptions
from dynamic_mcp.proxy.subscriptions import Subscriptions
from dynamic_mcp.proxy.tasks import Tasks
from dynamic_mcp.proxy.views import Views


class UpstreamMessages:
    """Takes the questions and notifications of the upstreams of one proxy."""

    def __init__(
        self,
        views: Views,
        chains: Chains,
        tasks: Tasks,
        elicitations: Elicitations,
        subscriptions: Subscriptions,
        resource_subscriptions: ResourceSubscriptions,
    ) -> None:
        self._views = views
        self._chains = chains
        self._tasks = tasks
        self._elicitations = elicitations
        self._subscriptions = subscriptions
        self._resource_subscriptions = resource_subscriptions

    def choose_user(self, instance: Instance, frame: Frame, user: User | None) -> User | None:
        """Return who is asked a question of the upstream, where `user` would be by the calls in flight."""
        return self._tasks.choose_user(instance, frame, user)

    def prepare_question(self, instance: Instance, frame: Frame, user: User) -> Frame:
        """Return a request of the upstream as its client may see it, with the id that a task has for that.

        Raises UnsafeQuestion.
        """
        from dynamic_mcp.proxy.asked_questions import prepare  # with the first question

        name = instance.config.name
        frame = prepare(name, user.client, self._views.messages.present(name, frame))
        self._elicitations.note_request(user.client, frame)
        return self._tasks.with_client_task_id(instance, frame)

    def pass_on(
        self,
        group: Group,
        instance: Instance,
        frame: Frame,
        recipients: Sequence[User],
        may_read: Callable[[Group, Client, str], bool],
    ) -> None:
        """Pass a notification on to whom it concerns. `may_read` tells whether a resource exists for a client."""
        owner = self._tasks.owner(instance, frame)
        recipients = [each for each in recipients if each.client.is_initialized] if owner is None else [owner]
        frame = self._tasks.with_client_task_id(instance, self._views.messages.present(group.name, frame))
        match frame.method:
            case "notifications/resources/updated":
                self._chains.record_update(group, frame)
                self._resource_subscriptions.pass_update_on(group, instance, frame, partial(may_read, group))
            case "notifications/tasks/status" if self._tasks.pass_status_on(
                instance, frame, [each.client for each in recipients]
            ):
                pass
            case _ if frame.method == COMPLETE and self._elicitations.pass_completion_on(instance, frame):
                pass
            case "notifications/message":
                self._subscriptions.log(group, instance, frame, recipients)
            case _:
                for user in recipients:
                    user.notify(frame)
