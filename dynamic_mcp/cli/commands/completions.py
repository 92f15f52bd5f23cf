"""`dynamic-mcp completions SHELL`: a script that completes commands, groups, tools and arguments."""

from __future__ import annotations

import click

# bash splits words at `=`, `:` and `@`. The script joins them, completes the whole word, and cuts off the part that
# bash already has. No space follows `key=`.
_BASH = r"""
_dynamic_mcp_completion() {
    local line=${COMP_LINE:0:COMP_POINT} word i type value whole begun
    local -a words=()
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if ((i == 0)) || [[ $line == [[:space:]]* || -z $line ]]; then
            words+=("$word")
        else
            words[${#words[@]}-1]+=$word
        fi
        line=${line#*"$word"}
    done
    whole=${words[${#words[@]}-1]}
    begun=${COMP_WORDS[COMP_CWORD]}
    [[ $begun == [=:@]* ]] && begun=
    COMPREPLY=()
    while IFS=, read -r type value; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain)
                [[ $value == *= ]] && compopt -o nospace
                value=${value#"${whole%"$begun"}"}
                [[ $value == *= ]] || printf -v value %q "$value"
                COMPREPLY+=("$value")
                ;;
        esac
    done < <(IFS=$'\n'; COMP_WORDS="${words[*]}" COMP_CWORD=$((${#words[@]} - 1)) \
        _DYNAMIC_MCP_COMPLETE=bash_complete "$1" 2>/dev/null)
}
complete -o nosort -F _dynamic_mcp_completion dynamic-mcp
"""

# The words are passed in single quotes of POSIX, as the program reads them, and a reply is quoted so that PowerShell
# takes it as text. Without a reply PowerShell completes the names of files.
_POWERSHELL = r"""
Register-ArgumentCompleter -Native -CommandName dynamic-mcp -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $words = @()
    foreach ($element in $commandAst.CommandElements) {
        if ($element.Extent.StartOffset -ge $cursorPosition) { break }
        if ($element -is [System.Management.Automation.Language.StringConstantExpressionAst]) {
            $words += $element.Value
        } else {
            $words += $element.Extent.Text
        }
    }
    if ($wordToComplete -eq '') { $words += '' }
    $variables = @{
        _DYNAMIC_MCP_COMPLETE = 'bash_complete'
        COMP_WORDS = ($words | ForEach-Object { "'" + $_.Replace("'", "'\''") + "'" }) -join ' '
        COMP_CWORD = $words.Count - 1
        PYTHONIOENCODING = 'utf-8'
    }
    $before = @{}
    foreach ($name in $variables.Keys) { $before[$name] = [Environment]::GetEnvironmentVariable($name) }
    $encoding = [Console]::OutputEncoding
    try {
        [Console]::OutputEncoding = New-Object System.Text.UTF8Encoding $false
        foreach ($name in $variables.Keys) { Set-Item "Env:$name" $variables[$name] }
        $replies = @(& dynamic-mcp 2>$null)
    } finally {
        [Console]::OutputEncoding = $encoding
        foreach ($name in $before.Keys) {
            if ($null -eq $before[$name]) { Remove-Item "Env:$name" } else { Set-Item "Env:$name" $before[$name] }
        }
    }
    foreach ($reply in $replies) {
        $type, $value = $reply -split ',', 2
        if ($type -ne 'plain' -or -not $value) { continue }
        $text = $value
        if ($value -cnotmatch '\A[A-Za-z0-9_-][A-Za-z0-9_=./:-]*\z') {
            $quoting = [System.Management.Automation.Language.CodeGeneration]
            $text = "'" + $quoting::EscapeSingleQuotedStringContent($value) + "'"
        }
        [System.Management.Automation.CompletionResult]::new($text, $value, 'ParameterValue', $value)
    }
}
"""

# no space after `key=`, since its value follows
_ZSH = (
    (
        'if [[ "$type" == "plain" ]]; then',
        'if [[ "$type" == "plain" ]]; then\n            [[ $key == *= ]] && open=(-S "")',
    ),
    ("    local -a response\n", "    local -a response open\n"),
    ("completions_with_descriptions -U\n", 'completions_with_descriptions -U "${open[@]}"\n'),
    ("compadd -U -V", 'compadd -U "${open[@]}" -V'),
)


_OWN = {"bash": _BASH, "powershell": _POWERSHELL}


@click.command(short_help="Print a completion script for a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish", "powershell"]))
def command(shell: str) -> None:
    """Print a completion script for a SHELL. Load it when the shell starts:

    \b
    bash: eval "$(dynamic-mcp completions bash)"        in ~/.bashrc
    zsh:  eval "$(dynamic-mcp completions zsh)"         in ~/.zshrc, after compinit
    fish: dynamic-mcp completions fish | source         in ~/.config/fish/config.fish
    PowerShell: dynamic-mcp completions powershell | Out-String | Invoke-Expression         in $PROFILE
    """
    if shell in _OWN:
        click.echo(_OWN[shell])
        return
    from click.shell_completion import get_completion_class

    from dynamic_mcp.cli.command_group import commands

    completion_class = get_completion_class(shell)
    assert completion_class is not None, "click supports these shells"
    complete = completion_class(commands, {}, "dynamic-mcp", "_DYNAMIC_MCP_COMPLETE")
    script = complete.source_template % complete.source_vars()
    for before, after in _ZSH if shell == "zsh" else ():
        script = script.replace(before, after)
    click.echo(script)
