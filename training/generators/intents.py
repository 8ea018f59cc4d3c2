"""What can be asked for: 23 intents, with the names, descriptions and parameters that a declaration may use.

`params`: name -> (kind, names that a declaration may give it, required). A kind is `str:<slot>` (free text),
`int:<low>:<high>`, `flag:<true word>:<false word>` (declared as boolean or enum) or `enum:<a,b,c>` (spoken as it is).
`say` holds the phrasings, `missing` those that lack a required value. `{x?text}` is an optional part: said with `text`
before it, or not at all. What stands after the `|` is held out from training.
"""

from training.generators.phrases import split

INTENTS = {
    "light": dict(
        names="set_light turn_light light_control switch_light set_lights lights_power toggle_room_light control_light",
        desc=[
            "Turn a room's light on or off",
            "Switch the lights in a room",
            "Control room lighting power",
            "Lights on/off for a room",
            "Switches a lamp on or off",
        ],
        params={
            "room": ("str:room", "room area location place zone", True),
            "on": ("flag:on:off", "on state power is_on enabled", True),
        },
        say="""turn {on} the {room} light; turn {on} the lights in the {room}; switch {on} the {room} lights; {room} lights {on};
            switch the {room} light {on}; turn the lights {on} in the {room}; put {on} the light in the {room}; lights {on} in {room};
            set the {room} lights to {on}; i want the {room} lights {on}; get the lights {on} in the {room}; turn the {room} lamp {on};
            flip the {room} light {on}; in the {room} turn the light {on}
            | make sure the lights in the {room} are {on}; {on} with the {room} lights; have the {room} lamps switched {on}""",
        missing="turn {on} the lights; switch the light {on}; lights {on} | put the lamp {on}",
    ),
    "brightness": dict(
        names="set_brightness dim_light light_level set_light_brightness adjust_brightness brightness_control",
        desc=[
            "Set the light level of a room",
            "Change brightness in percent",
            "Dim or brighten a room's lights",
            "Adjust how bright a room is",
        ],
        params={
            "room": ("str:room", "room area location zone", True),
            "level": ("int:1:100", "level brightness percent value", True),
        },
        say="""dim the {room} to {level}; set the {room} brightness to {level} percent; make the {room} lights {level}%;
            dim the lights in the {room} to {level} percent; brighten the {room} to {level}%; set the {room} lights to {level}%;
            {room} brightness {level}; bring the {room} lights up to {level}; lower the {room} lights to {level} percent;
            {level} percent light in the {room}; put the {room} light level at {level}
            | i would like the {room} at {level} percent brightness; take the {room} lamps down to {level}""",
        missing="dim the lights; set the brightness; dim the {room}; make the {room} brighter | brighten things up",
    ),
    "color": dict(
        names="set_color light_color set_light_color change_color color_control paint_lights",
        desc=["Set the colour of a room's lights", "Change light color", "Pick the color of the lamps in a room"],
        params={
            "room": ("str:room", "room area location zone", True),
            "color": ("str:color", "color colour hue tint", True),
        },
        say="""make the {room} lights {color}; set the {room} light color to {color}; turn the {room} lights {color};
            change the {room} to {color}; {color} light in the {room}; set {color} lights in the {room}; paint the {room} {color};
            color the {room} lights {color}; switch the {room} lamps to {color}
            | i want {color} lamps in the {room}; give the {room} a {color} glow""",
        missing="change the light color; make the {room} lights another color | pick a color",
    ),
    "thermostat": dict(
        names="set_thermostat set_temperature heat_to thermostat_set climate_control set_climate adjust_heating",
        desc=[
            "Set the target temperature",
            "Heating and cooling set point in degrees",
            "Change the thermostat",
            "Set how warm the house is",
        ],
        params={
            "temperature": ("int:10:32", "temperature degrees target value temp", True),
            "room": ("str:room", "room area zone", False),
        },
        say="""set the thermostat to {temperature}{room? in the }; make it {temperature} degrees{room? in the };
            heat the house to {temperature}; set the temperature to {temperature} degrees{room? in the };
            set the {room} to {temperature} degrees; warm the {room} to {temperature}; cool it down to {temperature}{room? in the };
            thermostat {temperature}; i want {temperature} degrees{room? in the }; heating to {temperature}{room? for the };
            change the heating to {temperature} degrees{room? in the }
            | bring the {room} up to {temperature} degrees; keep it at {temperature} degrees{room? in the }""",
        missing="make it warmer; change the temperature; it is too cold; set the thermostat | turn the heating up",
    ),
    "fan": dict(
        names="set_fan fan_speed control_fan fan_control set_fan_speed ventilate",
        desc=["Set the speed of a room fan", "Control a fan", "Fan speed for a room"],
        params={
            "room": ("str:room", "room area location zone", True),
            "speed": ("enum:low,medium,high", "speed level mode", True),
        },
        say="""set the {room} fan to {speed}; put the fan in the {room} on {speed}; {room} fan {speed}; run the {room} fan at {speed} speed;
            turn the {room} fan to {speed}; fan speed {speed} in the {room}; switch the {room} fan to {speed}
            | let the fan in the {room} spin on {speed}; i need the {room} fan at {speed}""",
        missing="turn on the fan; set the fan to {speed}; run the {room} fan | fan please",
    ),
    "blinds": dict(
        names="set_blinds move_blinds blinds_control control_shades curtains shutter_control",
        desc=["Open or close the blinds in a room", "Move window shades", "Control curtains"],
        params={
            "room": ("str:room", "room area location window zone", True),
            "open": ("flag:open:close", "open action position command", True),
        },
        say="""{open} the {room} blinds; {open} the blinds in the {room}; {open} the curtains in the {room}; {open} the {room} shades;
            {open} all blinds in the {room}; {open} the {room} curtains; {open} the window shades in the {room}
            | {open} up the shutters in the {room}; i want you to {open} the {room} shutters""",
        missing="{open} the blinds; {open} the curtains | {open} the shutters",
    ),
    "lock": dict(
        names="lock_door set_lock door_lock control_lock lock_control secure_door",
        desc=["Lock or unlock a door", "Control a smart lock", "Door lock"],
        params={
            "door": ("str:door", "door name lock target entry", True),
            "locked": ("flag:lock:unlock", "locked action state command", True),
        },
        say="""{locked} the {door}; {locked} {door}; {locked} the {door} now; go and {locked} the {door}; i want to {locked} the {door};
            {locked} up the {door}; quickly {locked} the {door}
            | see to it that you {locked} the {door}; time to {locked} the {door}""",
        missing="{locked} the door; {locked} it | {locked} up",
    ),
    "scene": dict(
        names="activate_scene set_scene run_scene start_scene scene_on apply_scene",
        desc=["Activate a named scene", "Start a saved scene", "Apply a home scene by name"],
        params={"scene": ("str:scene", "scene name scene_name preset", True)},
        say="""activate the {scene} scene; start {scene} scene; set the scene to {scene}; run the {scene} scene; switch to {scene} mode;
            turn on the {scene} scene; scene {scene}; apply scene {scene}; {scene} mode; put the house in {scene} mode
            | bring up the {scene} preset; go to the {scene} setting""",
        missing="activate a scene; change the scene | start the scene",
    ),
    "play": dict(
        names="play_music play_song start_music music_play play_media play",
        desc=["Play music by title, artist or genre", "Start a song", "Plays the requested music"],
        params={"query": ("str:music", "query song music title search", True)},
        say="""play {query}; play some {query}; put on {query}; start playing {query}; i want to hear {query}; play me {query};
            listen to {query}; throw on some {query}; put {query} on; play the song {query}
            | let us hear {query}; queue up {query}""",
        missing="play something; put on some music; play a song | play music",
    ),
    "pause": dict(
        names="pause_music pause stop_music pause_playback media_pause pause_media",
        desc=["Pause the current music", "Pause playback", "Stop what is playing"],
        params={},
        say="""pause the music; pause; stop the music; pause playback; hold the music; stop playing; pause the song; music off; pause this;
            quiet the music for a moment | halt the song; give the music a break""",
    ),
    "next": dict(
        names="next_track skip_song next_song skip skip_track media_next",
        desc=["Skip to the next song", "Next track", "Jump to the following track"],
        params={},
        say="""next song; skip this song; next track; skip; play the next one; skip to the next track; go to the next song; next one
            | jump ahead a track; move on to another song""",
    ),
    "volume": dict(
        names="set_volume volume change_volume volume_level adjust_volume speaker_volume",
        desc=["Set the speaker volume", "Change the loudness", "Volume from 0 to 100"],
        params={"level": ("int:0:100", "level volume percent value", True)},
        say="""set the volume to {level}; volume {level}; turn the volume to {level} percent; change the volume to {level};
            make the volume {level}%; put the sound at {level}; turn it up to {level}; turn it down to {level}; sound level {level}
            | crank the sound to {level}; speakers at {level} percent""",
        missing="turn up the volume; make it louder; turn it down; change the volume | less noise",
    ),
    "timer": dict(
        names="set_timer start_timer timer create_timer countdown timer_start",
        desc=["Start a countdown timer", "Set a timer in minutes", "Create a timer"],
        params={
            "minutes": ("int:1:120", "minutes duration mins duration_minutes", True),
            "label": ("str:label", "label name title", False),
        },
        say="""set a timer for {minutes} minutes{label? for }; start a {minutes} minute timer{label? called };
            timer {minutes} minutes{label? for }; set a {label} timer for {minutes} minutes; count down {minutes} minutes{label? for };
            {minutes} minute timer; start a timer of {minutes} min{label? for }; give me {minutes} minutes on the {label} timer
            | time {minutes} minutes{label? for the }; run a countdown of {minutes} minutes""",
        missing="set a timer; start a timer; start the {label} timer | timer please",
    ),
    "alarm": dict(
        names="set_alarm create_alarm alarm wake_me alarm_set add_alarm",
        desc=["Set an alarm", "Create an alarm at a time", "Wake-up alarm"],
        params={"time": ("str:time", "time at alarm_time when", True)},
        say="""set an alarm for {time}; wake me up at {time}; alarm at {time}; set the alarm to {time}; wake me at {time};
            create an alarm for {time}; i need an alarm at {time}; add a {time} alarm
            | get me up at {time}; make sure i am awake by {time}""",
        missing="set an alarm; wake me up; i need an alarm | alarm please",
    ),
    "reminder": dict(
        names="add_reminder create_reminder remind set_reminder remind_me new_reminder",
        desc=["Create a reminder", "Remind the user of something", "Add a reminder, time is optional"],
        params={
            "text": ("str:task", "text task message content what", True),
            "time": ("str:time", "time at when due", False),
        },
        say="""remind me to {text}{time? at }; remind me at {time} to {text}; add a reminder to {text}{time? at };
            set a reminder to {text}{time? for }; i have to {text}{time? at }, remind me; reminder: {text};
            at {time} remind me to {text}; create a reminder {text}{time? at }
            | do not let me forget to {text}; nudge me to {text}{time? at }""",
        missing="remind me; set a reminder; add a reminder for later; remind me at {time} | new reminder",
    ),
    "weather": dict(
        names="get_weather weather weather_report check_weather forecast current_weather",
        desc=["Get the weather for a city", "Weather forecast", "Look up the weather of a place"],
        params={"city": ("str:city", "city location place town", True), "day": ("str:day", "day date when", False)},
        say="""what's the weather in {city}{day? }?; weather in {city}{day? }; how is the weather in {city}{day? }?;
            is it raining in {city}{day? }?; will it rain in {city} {day}?; get the forecast for {city}{day? };
            weather for {city}{day? }; tell me the weather in {city}{day? }; is it sunny in {city}?; {city} weather {day};
            how cold is it in {city}{day? }?; do i need an umbrella in {city}{day? }?
            | what is it like outside in {city}{day? }?; any snow in {city}{day? }?""",
        missing="what's the weather?; how is the weather today?; will it rain? | is it nice out?",
    ),
    "message": dict(
        names="send_message text_contact send_text message send_sms write_message",
        desc=["Send a text message to a contact", "Message someone", "Sends an SMS"],
        params={
            "contact": ("str:contact", "contact to recipient name person", True),
            "text": ("str:text", "text message body content", True),
        },
        say="""text {contact} {text}; send a message to {contact} saying {text}; tell {contact} {text}; message {contact}: {text};
            text {contact} that {text}; send {contact} the message {text}; write to {contact}: {text}; let {contact} know {text};
            send a text to {contact} saying {text}
            | shoot {contact} a text saying {text}; pass on to {contact} that {text}""",
        missing="send a message; text {contact}; send {contact} a message; write a message | message someone",
    ),
    "call": dict(
        names="call_contact call phone make_call dial start_call",
        desc=["Call a contact", "Start a phone call", "Phone someone"],
        params={"contact": ("str:contact", "contact name person who callee", True)},
        say="""call {contact}; phone {contact}; ring {contact}; make a call to {contact}; dial {contact}; give {contact} a call;
            start a call with {contact}; i want to call {contact}; get {contact} on the phone; place a call to {contact}
            | give {contact} a ring; get hold of {contact} by phone""",
        missing="make a call; call someone; start a call | phone somebody",
    ),
    "shopping": dict(
        names="add_to_list shopping_add add_item add_shopping_item list_add buy_item",
        desc=["Add an item to the shopping list", "Put something on the shopping list", "Shopping list entry"],
        params={
            "item": ("str:item", "item product name thing", True),
            "quantity": ("int:2:24", "quantity count amount number", False),
        },
        say="""add {item} to the shopping list; put {item} on the list; add {quantity} {item} to my shopping list; we need {item};
            put {quantity} {item} on the shopping list; buy {item}; add {item} to my list; {item} on the shopping list;
            shopping list: {item}; we are out of {item}; add {quantity} {item} to the list
            | pick up {item} next time; note down {item} for the shop""",
        missing="add something to the list; shopping list; add to the shopping list | we need things",
    ),
    "event": dict(
        names="create_event add_event calendar_add schedule new_event add_calendar_event",
        desc=["Create a calendar event", "Schedule something", "Add an entry to the calendar"],
        params={
            "title": ("str:title", "title name event summary", True),
            "day": ("str:day", "day date when", True),
            "time": ("str:time", "time at start start_time", False),
        },
        say="""schedule {title} on {day}{time? at }; add {title} to my calendar {day}{time? at }; create an event {title} {day}{time? at };
            put {title} on the calendar for {day}{time? at }; book {title} for {day}{time? at }; new event {title} on {day}{time? at };
            on {day}{time? at } schedule {title}; plan {title} for {day}{time? at }
            | block {day} for {title}; pencil in {title} for {day}{time? at }""",
        missing="add an event; schedule {title}; put something on my calendar | new event",
    ),
    "note": dict(
        names="add_note take_note save_note create_note write_note memo",
        desc=["Save a note", "Write down a note", "Store free text"],
        params={"text": ("str:text", "text note content body", True)},
        say="""take a note: {text}; note that {text}; write down {text}; save a note saying {text}; make a note: {text}; note: {text};
            new note {text}; write a note that {text}
            | jot down {text}; put this in my notes: {text}""",
        missing="take a note; write a note; new note | note this",
    ),
    "light_state": dict(
        names="get_light_state is_light_on light_status check_light read_light",
        getter=True,
        desc=["Tell whether a room's light is on", "Read the state of a light", "Query light status"],
        params={"room": ("str:room", "room area location zone", True)},
        say="""is the {room} light on?; are the lights on in the {room}?; is the light in the {room} off?; are the {room} lights off?;
            check if the {room} light is on; did i leave the {room} light on?; what is the state of the {room} light?
            | do the lights still burn in the {room}?; tell me if the {room} lamp is on""",
    ),
    "temperature": dict(
        names="get_temperature read_temperature room_temperature temperature_status get_room_temp",
        getter=True,
        desc=["Read the current temperature of a room", "Tell how warm a room is", "Temperature sensor"],
        params={"room": ("str:room", "room area location zone", True)},
        say="""what is the temperature in the {room}?; how warm is the {room}?; how cold is it in the {room}?; is it warm in the {room}?;
            what's the {room} temperature?; read the temperature in the {room}
            | how many degrees does the {room} have?; tell me how hot the {room} is""",
    ),
}
GETTERS = [k for k, v in INTENTS.items() if v.get("getter")]
ACTIONS = [k for k in INTENTS if k not in GETTERS]

for _intent in INTENTS.values():
    _intent["say"], _intent["missing"] = split(_intent["say"]), split(_intent.get("missing"))

# A request for the left intent could also be served by the right ones: never declare those beside it.
CONFLICT = {
    "light": ("scene",),
    "scene": ("light",),
    "brightness": ("color",),
    "color": ("brightness", "light"),
    "note": ("reminder", "event", "shopping"),
    "reminder": ("note", "event", "alarm"),
    "event": ("reminder", "note"),
    "alarm": ("reminder",),
    "weather": ("temperature",),
    "temperature": ("weather",),
    "thermostat": ("volume", "brightness"),
    "volume": ("thermostat", "brightness"),
    "shopping": ("note", "reminder"),
    "message": ("call",),
    "play": ("scene",),
}

#: Words that a wish may begin with; only before these does a polite opening or a negation read well.
IMPERATIVE = set(
    """turn switch put set dim make brighten bring lower change paint color heat warm cool run open close lock unlock
activate start apply play pause stop hold skip wake create add remind text send tell message write let call phone ring dial give
buy schedule book plan take save note go {open} {locked}""".split()
)
