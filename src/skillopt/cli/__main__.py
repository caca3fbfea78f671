from skillopt.cli import main

main()
