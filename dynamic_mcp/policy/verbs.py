"""The words in the name and the description of a tool that tell whether it only reads.

English, with the common verbs of other large languages. A tool without any of these words counts as one that writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache


def words(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


# Look at something and leave it as it was.
READ = words(
    """
    browse count describe diff discover enumerate exists explain explore fetch find get glob grep has help
    history info inspect is list locate lookup ls peek preview read recall recommend retrieve return search show
    stat status suggest summarise summarize view whoami
    buscar consultar leer listar mostrar obtener contar afficher chercher lire lister obtenir rechercher abrufen
    anzeigen auflisten holen lesen suchen ler obter procurar cerca elenca leggi mostra ottieni
    """
)

# Usually only look or compute, but some tools with these names do more.
MAY_READ = words(
    """
    aggregate analyse analyze calculate check compare compute detect diagnose estimate extract gather identify
    lint measure monitor ping poll provide query scan tail translate validate verify
    """
)

# Change something, run something or send something; in a name, they are hardly ever nouns.
WRITE = words(
    """
    abort accept ack acquire activate add adjust advance allocate alter annotate append apply approve assign
    associate attach authenticate authorize ban bind bootstrap cancel claim cleanup clear click clone close
    compile compose configure connect consume convert cordon create customize deactivate deallocate decline decr
    decrement del delete demote deprovision deregister destroy detach disable disassociate disconnect dismiss
    downvote drag drain drop duplicate edit emulate enable enqueue erase eval evaluate evict exec execute expire
    fill finish flush follow force forget freeze generate goto grant handle hibernate hide hover impersonate
    inactivate incr increment ingest initialise initialize inject insert install invite invoke join kick kill
    launch leave login logout manage mark migrate modify mount move mute navigate open optimize overwrite pause
    pay perform persist pin play post press prioritize promote protect provision prune publish purge put react
    reactivate rebase reboot rebuild recover redo refund register reindex reject reload relocate remember remove
    rename renew reopen reorder repair replace reply reprioritize rerun rescale reschedule reserve reset resize
    restart restore resume retry revert revoke rewrite rollback rotate save scale seed send shutdown sign signup
    spawn squash start stop submit subscribe suspend swap swipe sync synchronize tap terminate toggle train
    transition trash truncate unarchive unassign unban unbind unblock undeploy undo unfollow unfreeze uninstall
    unlike unlink unlock unmark unmount unmute unpin unprotect unpublish unregister unschedule unset unshare
    unstage unstar unsubscribe update upgrade upload upsert upvote vacuum vote wipe withdraw write
    hset hdel hincrby lpush rpush lpop rpop lrem sadd srem zadd zrem xadd xdel xack xreadgroup psubscribe
    actualizar agregar borrar crear ejecutar eliminar enviar escribir guardar modificar ajouter creer ecrire
    envoyer executer modifier supprimer aendern ausfuehren entfernen erstellen hinzufuegen loeschen schreiben
    senden speichern adicionar apagar atualizar criar excluir aggiorna aggiungi crea elimina invia modifica
    scrivi
    """
)

# Also verbs, but as often nouns: `get_release_notes` reads, `release_version` does not.
MAY_WRITE = words(
    """
    archive backup block book bookmark branch build call capture change charge checkout comment commit complete
    copy cut deploy download draft export favorite fix flag fork format forward import issue label like link
    lock log map merge message note order patch plan pop process pull push rate record reference release replay
    replicate report request review rollout route run sample schedule set share simulate split stage star store
    switch tag task test trace track transfer trigger type watch
    """
)

# Words that a sentence has in many places other than that of its verb.
_NO_LEADS = words("exists has help history info is status following")

# Other scripts have no spaces between words, or other endings; these are parts of words.
READ_PARTS = tuple(words("查询 获取 搜索 列出 读取 查看 検索 取得 一覧 表示 조회 검색 получ найти"))
WRITE_PARTS = tuple(
    words(
        "创建 删除 更新 修改 添加 发送 执行 写入 设置 上传 作成 削除 追加 変更 送信 実行"
        " 생성 삭제 수정 추가 전송 실행 созда удал измен отправ добав обнов"
    )
)


@cache
def english_forms() -> Mapping[str, str]:
    """Return the verb for each inflected form: `creates` and `creating` are `create`."""
    found: dict[str, str] = {}
    for verb in sorted(READ | MAY_READ | WRITE | MAY_WRITE):
        for form in _forms(verb):
            found.setdefault(form, verb)
    found |= {verb: verb for verb in READ | MAY_READ | WRITE | MAY_WRITE}
    return {form: verb for form, verb in found.items() if form not in _NO_LEADS}


def _forms(verb: str) -> Iterable[str]:
    stem = verb.removesuffix("e")
    yield from (f"{verb}s", f"{verb}es", f"{stem}ing", f"{verb}{verb[-1]}ing")
    if verb.endswith("y"):
        yield f"{verb[:-1]}ies"
