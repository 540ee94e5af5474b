timeout: failed to run command ‘ossicle’: No such file or directory
