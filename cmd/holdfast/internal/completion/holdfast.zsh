#compdef holdfast
# Completion of holdfast for zsh.
_holdfast() {
    local line help
    local -a lines values
    lines=("${(@f)$(holdfast __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    case $lines[1] in
    files) _files ;;
    commands) _command_names -e || _files ;;
    values)
        for line in "${(@)lines[2,-1]}"; do
            help=${line#*$'\t'}
            values+=("${${line%%$'\t'*}//:/\\:}${help:+:$help}")
        done
        _describe -t values holdfast values
        ;;
    esac
}
if [[ $funcstack[1] == _holdfast ]]; then
    _holdfast "$@"
else
    compdef _holdfast holdfast
fi
