from skillopt_webui.app import main

if __name__ == "__main__":
    main()
