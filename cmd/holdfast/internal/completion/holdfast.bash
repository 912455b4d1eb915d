# Completion of holdfast for bash.
_holdfast() {
    local i n=-1 word rest=${COMP_LINE:0:COMP_POINT} stripped current trim found value _
    local -a words=()
    # Bash splits words at ":" and "=" too. Those with no space between them belong together.
    for ((i = 0; i <= COMP_CWORD; i++)); do
        stripped=${rest#"${rest%%[![:space:]]*}"}
        if [[ $i -eq 0 || $stripped != "$rest" ]]; then
            n=$((n + 1))
            words[n]=
        fi
        rest=$stripped
        word=${COMP_WORDS[i]:0:${#rest}}
        words[n]+=$word
        rest=${rest#"$word"}
    done
    current=${words[n]}
    COMPREPLY=()
    found=$(holdfast __complete "${words[@]:1}" 2>/dev/null)
    case ${found%%$'\n'*} in
    files | commands)
        while IFS= read -r value; do
            COMPREPLY+=("$value")
        done < <(compgen -A file ${found:+$([[ $found == commands* ]] && printf '%s' '-A command')} -- "$current")
        compopt -o filenames 2>/dev/null
        return
        ;;
    esac
    trim=${current%"${current##*[:=]}"}
    while IFS=$'\t' read -r value _; do
        [[ $value == *[:/=] ]] && compopt -o nospace 2>/dev/null
        COMPREPLY+=("$(printf '%q' "${value#"$trim"}")")
    done < <([[ $found == *$'\n'* ]] && printf '%s\n' "${found#*$'\n'}")
}
complete -F _holdfast holdfast
