from yaml.error import YAMLError

class ReaderError(YAMLError):
    character: int | str
    position: int
    reason: str
