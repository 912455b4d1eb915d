# Completion of holdfast for fish.
function __holdfast_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l lines (holdfast __complete $words[2..-1] "$current" 2>/dev/null)
    switch "$lines[1]"
        case files
            __fish_complete_path "$current"
        case commands
            __fish_complete_command
        case values
            test (count $lines) -gt 1; and printf '%s\n' $lines[2..-1]
    end
end
complete -c holdfast -f -a '(__holdfast_complete)'
